"""Reports: a result, shown as text."""
