"""Inference engines behind one seam: ids and plain data in, ids and bytes out."""
