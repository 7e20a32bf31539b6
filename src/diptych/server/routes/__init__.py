"""Routes: each function checks nothing and computes nothing, it hands a request to the part that answers it."""
