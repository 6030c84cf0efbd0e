"""A contract for import-linter: a module `_x` is imported only inside the package it is in."""

from __future__ import annotations

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, output


class PrivateModules(Contract):
    type_name = "private"

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        broken = []
        for imported in sorted(graph.modules):
            owner = _owner(imported)
            if owner is None:
                continue
            broken += [
                (importer, imported)
                for importer in sorted(graph.find_modules_that_directly_import(imported))
                if importer != owner and not importer.startswith(f"{owner}.")
            ]
        return ContractCheck(kept=not broken, metadata={"broken": broken})

    def render_broken_contract(self, check: ContractCheck) -> None:
        for importer, imported in check.metadata["broken"]:
            output.print_error(f"{importer} imports {imported}, which is private to its package")


def _owner(module: str) -> str | None:
    """The package whose private module this is, or is in."""
    parts = module.split(".")
    for depth, part in enumerate(parts):
        if depth and part.startswith("_") and not part.startswith("__"):
            return ".".join(parts[:depth])
    return None
