"""The emitters: C functions with their thunks, and Go wrappers."""
