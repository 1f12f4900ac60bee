"""``python -m vit_vs_cnn``."""

import sys

from vit_vs_cnn.cli import main

if __name__ == "__main__":
    sys.exit(main())
