"""Launches: their driver, the servers that fork ranks, and the engines that run servers."""
