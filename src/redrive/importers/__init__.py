"""Importers: one file per recorded format."""
