"""What a program knows of its own training, in a file for the suite to compare with the report of `trainyard run`.

It is not printed: what the suite compares must have been read from the lines of the trainer alone.
"""

import sys


def write(**values: float | None) -> None:
    """Writes one `name value` line for each; `none` for what no line of the trainer contains."""
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        for name, value in values.items():
            file.write(f"{name} {'none' if value is None else value}\n")
