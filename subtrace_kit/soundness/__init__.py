"""Rules of a sound wrapper subclass, each tried on examples."""

from .report import Finding, Soundness

__all__ = ["Finding", "Soundness"]
