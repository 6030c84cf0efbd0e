"""The sides: one module each, with its `ENGINE`. A peer is imported only when opened."""
