"""The next command after each product: an ordered table of conditions, reasons and commands."""
