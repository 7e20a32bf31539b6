"""What is fitted to a finished model: learned tables, label decoders, the label encoder for sketches."""
