"""Colours and plot symbols: told apart without colour too."""

COLOURS = {
    "agg": ("#0b6e99", "circle"),
    "disagg": ("#c2571a", "x"),
    "chosen": ("#1a7f37", "star"),
}
