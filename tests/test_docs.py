"""What the documentation tells to run does run."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```(python|bash)\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.slow
def test_the_blocks_of_the_page_on_own_data_run_one_after_the_other(tmp_path, monkeypatch):
    pytest.importorskip("captum")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    blocks, names = BLOCK.findall((ROOT / "docs" / "own_data.md").read_text()), {}
    assert {"python", "bash"} == {language for language, _ in blocks}
    for language, block in blocks:
        try:
            if language == "python":
                exec(compile(block, "docs/howto/own_data.md", "exec"), names)
            else:
                subprocess.run(["bash", "-e", "-c", block], check=True)
        except Exception as error:
            pytest.fail(f"{error}\nin this block of docs/howto/own_data.md:\n{block}")
