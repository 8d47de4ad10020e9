"""watcher-loop: holds the launcher back until the pods named in an address file are ready or finished.

The program of the image watcher-loop; standard library only, quick to start.
"""
