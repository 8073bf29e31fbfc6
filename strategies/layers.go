package strategies

import "github.com/perfplan/perfplan/internal/diag"

// checkLayers holds a plan against what is known of layers that read what others made.
func (j *Job) checkLayers(p *Plan) error {
	if !j.Model.CrossLayer() {
		return nil
	}
	for _, c := range []struct {
		key string
		n   int64
	}{{"tp", p.TP}, {"cp", p.CP}, {"pp", p.PP}} {
		if c.n > 1 {
			return diag.Errorf("plan.%s: %d, but how recipe %s cuts keys and values that layers share, or embeddings of each layer, over such ranks is not known; set it to 1", c.key, c.n, j.Recipe.Name)
		}
	}
	return nil
}
