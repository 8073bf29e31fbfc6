package estimate

type pipelineRun struct{}

func (s *simulation) runPipeline(o Options) {}
func (r *pipelineRun) fill(*Result)         {}
