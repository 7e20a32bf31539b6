"""What makes two slices alike: tables of codes, learned tables, overlap of label maps, and their fusion."""
