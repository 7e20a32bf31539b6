"""Pictures of patients and pages about them: colours, tiles, contact sheets, HTML. Knows arrays and labels."""
