"""What knows the newest version of every artifact: a store, or the memory of a process."""
