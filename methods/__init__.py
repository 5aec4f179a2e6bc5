"""One file per method; each offers the `Method` subclasses it defines."""
