"""Numbers from a store: pandas, numpy and scipy. Nothing here knows about pages, figures or HTML."""
