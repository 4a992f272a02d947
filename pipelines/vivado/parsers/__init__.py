"""Reports and logs of Vivado: pure functions from text to values, one kind of report a file.

They raise ReportError when a text is not the report it should be; nothing is guessed from half a report. Layouts of
2018.3 to 2024.2 are covered by fixtures in ``tests/vivado/fixtures/reports``.
"""
