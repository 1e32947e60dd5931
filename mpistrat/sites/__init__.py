"""Sites as data: read files that describe supercomputers, render job scripts and submit them."""
