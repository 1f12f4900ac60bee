"""``tune``: choose recipes on validation images, and write a config with them."""


def run(words: list[str]) -> None:
    """Run the trials that are not done yet; print what was chosen and where it stands."""
    if "-h" in words or "--help" in words:
        print(HELP, end="")
        return
    from vit_vs_cnn import api
    from vit_vs_cnn.commands.train import config_from

    values, overrides, _ = config_from(words)
    folder = api.tune(values, overrides).folder
    print(f"Every trial is in {folder / 'tuning.csv'}")
    print(f"python -m vit_vs_cnn train --config {folder / 'tuned.yaml'}")


HELP = """usage: vit-vs-cnn tune --config FILE [--setting value ...]

Try protocol.trials recipes for every contender and training size, drawn at random from contenders.NAME.search, and
score them on validation images alone; the test set stays shut. Trials that are done are not run again.

A search names settings of the contender with the values to draw from:

  protocol:
    trials: 12
  contenders:
    vit:
      search: {optimizer.lr: {low: 1e-3, high: 3e-2, log: true}, optimizer.weight_decay: [0.01, 0.05]}

Written: runs/<experiment>/tuning.csv (every trial) and tuned.yaml (the recipes chosen, a config that train takes).
train does the same by itself, before the grid, where a config sets protocol.trials.

  --tuning.pruner asha       end trials that fall behind (asynchronous successive halving)
  --tuning.seeds '[0, 1]'    judge every trial by the mean over several seeds
  --executor processes       run trials side by side; see train --help for this and all other settings
"""
