"""A Go program, gathered with all that it needs, in a folder that runs wherever it is copied to.

    from pytorch_bridge.packages.bundle import bundle

    made = bundle("./cmd/app", "dist/app", cpu=True, include=["model.safetensors"])
    print(made.folder, made.manifest["needs"]["glibc"])

The folder has

    app              the program, whose run path is $ORIGIN/lib
    lib              libcgotorch.so and the shared libraries that it needs
    licenses         the terms of what is in the bundle, by package
    bundle.json      what is in it, where that is from, and what it needs of a machine
    SHA256SUMS       for sha256sum -c
    sbom.spdx.json   a bill of materials for scanners, with sbom=True

and what `include` names. Such a folder starts on a Linux machine with glibc, of the release in
bundle.json or a newer one, and needs nothing else there: no Python, Go, compiler or checkout. It
needs no place to write to.

Made twice of the same, it is the same to the last bit; its dates are SOURCE_DATE_EPOCH, by default
0.
"""

from ...errors import BundleError
from .making import Bundle, bundle

__all__ = ["Bundle", "BundleError", "bundle"]
