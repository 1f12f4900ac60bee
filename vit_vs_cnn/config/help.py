"""Every setting with its type, default and meaning, read from the classes that define them."""

import contextlib
import io

from vit_vs_cnn.config.experiment import Contender, Data, Execution, Executor, Protocol, Tuning
from vit_vs_cnn.config.parsing import new_parser
from vit_vs_cnn.config.trainer import DECIDED_BY_PROTOCOL


def settings_help() -> str:
    """The text of ``train --help``."""
    from lightning import Trainer

    parser = new_parser(
        prog="train.py",
        usage="train.py [--config FILE ...] [--setting value ...] [--print_config]",
        description="Train the contenders of a config under one protocol and print the table. Every setting of the "
        "config can be given here by its dotted name, such as --protocol.budget.steps 50 or "
        "--contenders.vit.optimizer.lr 0.001. Without --config the quickstart runs.",
    )
    parser.add_argument("--config", help="a YAML file; several are merged, later ones win")
    parser.add_argument("--print_config", action="store_true", help="print the config with every default and stop")
    parser.add_argument("--name", type=str, help="names the folder of the results")
    parser.add_argument("--output", type=str, default="runs", help="the folder in which that folder lies")
    parser.add_class_arguments(Data, "data")
    parser.add_class_arguments(Protocol, "protocol")
    parser.add_class_arguments(Contender, "contenders.NAME")
    parser.add_class_arguments(Tuning, "tuning")
    parser.add_class_arguments(Execution, "execution")
    parser.add_class_arguments(Executor, "executor")
    parser.add_class_arguments(Trainer, "trainer", skip=set(DECIDED_BY_PROTOCOL))
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        parser.print_help()
    return text.getvalue()
