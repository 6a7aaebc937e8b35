"""What commands and the page say in the same words: sizes, times, states of versions, reasons why snapshots stay."""
