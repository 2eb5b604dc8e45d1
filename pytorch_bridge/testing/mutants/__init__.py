"""Mutation testing: breaks one place of the code at a time, and looks whether a test notices."""
