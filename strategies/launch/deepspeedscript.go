package launch

import "fmt"

// Scripts that call DeepSpeed themselves, with its own two arguments: --deepspeed, without a file, and
// --deepspeed_config. What else they do is not known but of DeepSpeed-Chat's (DeepSpeedExamples,
// applications/DeepSpeed-Chat/training/step1_supervised_finetuning/main.py).
var (
	deepspeedScript = &dialect{names: map[string]string{"deepspeed_config": "deepspeed", "model_name": "model_name_or_path", "max_seq_len": "max_length"}, defaults: map[string]string{}, loops: true}
	deepspeedChat   = &dialect{
		loops: true,
		marks: []string{"max_seq_len", "lora_dim", "data_split", "zero_stage"},
		names: map[string]string{"max_seq_len": "max_length", "dtype": "mixed_precision", "zero_stage": "deepspeed.zero_stage"},
		defaults: map[string]string{"per_device_train_batch_size": "16", "gradient_accumulation_steps": "1", "max_length": "512", "pad_to_max_length": "true", "mixed_precision": "fp16", "deepspeed.zero_stage": "0",
			"gradient_checkpointing": "false"},
	}
)

// callsDeepSpeed is how such a script says its arguments, nil where it is none.
func (f flags) callsDeepSpeed() *dialect {
	_, named := f["deepspeed_config"]
	_, model := f["model_name_or_path"]
	switch {
	case f["deepspeed"].value != "true" && !named:
		return nil
	case model && f.count(deepspeedChat.marks) > 0:
		return deepspeedChat
	}
	return deepspeedScript
}

// chat takes over what DeepSpeed-Chat makes of its arguments: a configuration of DeepSpeed
// (dschat/utils/ds_utils.py), and adapters, beside which it trains the model, too, unless told not to.
func (t *trainer) chat() error {
	stage, kind, host := t.get("deepspeed.zero_stage"), t.get("mixed_precision"), "none"
	if t.get("offload").on() {
		host = "cpu"
	}
	if stage.open+kind.open == "" {
		doc, err := parse("main.py", fmt.Appendf(nil, `{"gradient_clipping": 1, "zero_optimization": {"stage": %s, "overlap_comm": true, "offload_param": {"device": %q}, "offload_optimizer": {"device": %q},
			"stage3_param_persistence_threshold": 1e4, "stage3_max_live_parameters": 3e7, "stage3_prefetch_bucket_size": 3e7, "memory_efficient_linear": false}, %q: {"enabled": true}}`, stage.value, host, host, kind.value))
		if err != nil {
			return err
		}
		t.inline = &Job{}
		if err := t.inline.deepspeed("main.py", doc); err != nil {
			return err
		}
	}
	rank := t.given["lora_dim"]
	switch {
	case !rank.on():
	case t.given["only_optimize_lora"].on():
		for name, value := range map[string]string{"lora_r": rank.value, "lora_target_modules": "all"} {
			t.given[name] = argument{value: value, from: rank.from, given: true}
		}
	default:
		t.notes = append(t.notes, fmt.Sprintf("%s %s without --only_optimize_lora: adapters beside weights that are trained, too, are not known; these are taken alone", rank.from, rank.value))
	}
	return nil
}
