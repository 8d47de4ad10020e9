"""The operator as a process: reads from and writes to the API server, and decides nothing itself."""
