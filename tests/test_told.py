"""What is told while a command runs."""

from vit_vs_cnn.told import console_for_news


def test_brackets_and_colons_of_a_message_are_told_as_they_are(capsys):
    console_for_news().print("failed: no such file: [/data/x.png] in [test] :smile:", soft_wrap=True)
    console_for_news(quiet=True).print("[/nothing]")
    assert capsys.readouterr().err == "failed: no such file: [/data/x.png] in [test] :smile:\n"
