"""Holds the Go wrappers to what PyTorch gives in Python for the same arguments.

Both run in one process on one libtorch: the Go package is a shared library, loaded beside torch.
A `Case` is a function of PyTorch's schema with arguments; `check` calls it in Python, through
torch.ops, and then the Go wrapper in each of its forms, and says what differs.

    operators   the functions: schema, Go names, the function in torch.ops
    harness     builds and loads the shared library, and calls wrappers in it
    cases       arguments: their copies, and their siblings among the forms of a function
    samples     cases from PyTorch's own database of operators and samples
    by_hand     cases for what the database does not reach
    check       runs a case and compares
    reasons     what cannot be checked here, and why
    report      counts, and docs/conformance.md
"""
