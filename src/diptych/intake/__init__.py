"""Clinical intake: from what a scanner gives to what the network reads, and back."""
