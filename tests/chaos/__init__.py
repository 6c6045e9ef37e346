"""./scripts/chaos: faults against the real app on a real broker and registry, each verified record by record.

options                 the command line
scenarios               the list of scenarios: name, row of the fault matrix, repetitions by tier
lab                     the servers, and a stage for each scenario
stage                   the app and the producer as processes, on their own topic and lake
outcome                 the result of a scenario; the table of published results
"""
