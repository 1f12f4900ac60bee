"""Train the models of a config and print the table: ``python train.py [--config FILE] [--setting value ...]``."""

import sys

from vit_vs_cnn.cli import main

if __name__ == "__main__":
    sys.exit(main(["train", *sys.argv[1:]]))
