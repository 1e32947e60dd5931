"""What the tests of mpistrat.doctor share."""
