"""The methods of `CoherenceCore`, by subject."""
