"""./scripts/chaos: faults against the real app on a real broker and registry, each judged record by record.

options                 which scenarios, how often, from which seed
scenarios               what there is: name, row of the fault matrix, repetitions by tier
lab                     the servers, and a stage for each scenario
stage                   the app and the producer as processes, on a topic and a lake of their own
outcome                 what a scenario found; the table of published results
"""
