"""What every long training shares, whatever it trains: checkpoints, length, tables, stopping and repeating."""
