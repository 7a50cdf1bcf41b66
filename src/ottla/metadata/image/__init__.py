"""The state built from metadata records, one module a concern."""

from ottla.metadata.image.image import MetadataImage

__all__ = ["MetadataImage"]
