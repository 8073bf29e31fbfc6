// Package estimate predicts one training step: it is the glue of the flow
//
//	job → ops → times → actions → timeline → result
//
// and of what runs between them: gradients and parameters that ranks exchange, the
// optimizer, power. Estimate builds the units of a rank (model/ops), prices them
// (hardware/kernel, hardware/collective), runs them on the timeline as the plan's data
// parallelism and pipeline schedule say, adds memory, and finds the clock at which the
// step's power fits the card.
//
// An Evaluator does the same for many plans and keeps what they share: priced
// units, schedules, memory walks; its Score leaves out what ranking does not need.
// Layers and micro batches that go like the one before are passed over.
//
// strategies/search, calibrate/runs and the commands all call it; there is no
// second model.
package estimate
