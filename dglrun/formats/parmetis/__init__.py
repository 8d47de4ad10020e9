"""ParMETIS's text files: written for its programs, read back from them (user guide 7.4)."""
