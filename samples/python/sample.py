"""What the samples share: the line of an error, and the exit code of the weir command."""

import sys

import weir


def fault(error: weir.WeirError) -> int:
    """Prints the line. Returns 2 if the call was refused, 1 if it failed."""
    print(f"weir: {error}", file=sys.stderr)
    return 2 if isinstance(error, weir.Refused) else 1


def batches(source: weir.Source, faults: list[int]):
    """The batches of a source. What could not be read is told behind them."""
    try:
        yield from source
    except weir.Failed as error:
        faults.append(fault(error))


def run(main) -> None:
    try:
        sys.exit(main())
    except weir.WeirError as error:
        sys.exit(fault(error))
