"""The pictures, one kind a file: each takes numbers and returns an SVG that stands in the page itself."""
