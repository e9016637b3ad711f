"""Other people's programs: started, watched, ended, and read line by line.

Of the standard library alone: a worker that runs them is there in a tenth of a second.
"""
