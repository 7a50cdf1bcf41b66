"""The state that metadata records add up to, one module a concern."""

from ottla.metadata.image.image import MetadataImage

__all__ = ["MetadataImage"]
