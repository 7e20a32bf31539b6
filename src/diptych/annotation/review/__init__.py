"""Experts correct labels in the program they like: list what is least certain, export, take the edits back.

uncertain.list_patients     least certain first
export.export_review        images, labels and colour tables in one folder
take_back.import_review     edited labels back into their place, checked, with a line in the log of edits
"""
