"""What is read and written while the engine is away."""
