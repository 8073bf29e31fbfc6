package launch_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/strategies/launch"
)

// initial is the job file of files.
func initial(t *testing.T, files ...string) string {
	t.Helper()
	var jobs []*launch.Job
	for _, f := range files {
		j, err := launch.Read("a", []byte(f))
		require.NoError(t, err, f)
		jobs = append(jobs, j)
	}
	j, err := launch.Join(jobs)
	require.NoError(t, err, files)
	got, err := j.YAML()
	require.NoError(t, err)
	return string(got)
}

// TestLaunchers: how many GPUs there are by what starts the processes, or why that is open.
func TestLaunchers(t *testing.T) {
	const (
		megatron = " p.py --num-layers 4 --micro-batch-size 2 --bf16"
		trainer  = " p.py --output_dir x --model_name_or_path gpt2 --block_size 512 --bf16"
	)
	for text, want := range map[string]string{
		"srun -N 8 --ntasks-per-node=8 python":                                          "gpus: 64 # --ntasks-per-node, --nodes\n",
		"srun -n 64 python":                                                             "gpus: 64 # --ntasks\n",
		"srun -n64 -p gpu python -u":                                                    "gpus: 64 # --ntasks\n",
		"#SBATCH -N 8 -n 64\nsrun python":                                               "gpus: 64 # --ntasks\n",
		"#SBATCH -N8\n#SBATCH --gpus=h100:32\nsrun python":                              "gpus: 32 # --gpus\n",
		"torchrun --nnodes $N --node_rank $R":                                           "# gpus: --nnodes: line 1 takes $N, which the file does not set: give the key\n",
		"#SBATCH -N 8\nsrun python":                                                     "# gpus: --nodes: how many GPUs a node has is not said: give the key\n",
		"#SBATCH --ntasks-per-node=1\nsrun -N 4 torchrun --nproc-per-node 8 --nnodes 4": "gpus: 32 # --nproc",
		"srun --gres=gpu:h100:4 -N 2 python":                                            "gpus: 8 # --gpus",
		"mpirun -np 64 -H a:8 python":                                                   "gpus: 64 # --np\n",
		"mpiexec -n 16 python":                                                          "gpus: 16 # --np\n",
		"mpirun -np $N python":                                                          "# gpus: --np: line 1 takes $N, which the file does not set: give the key\n",
		"deepspeed --include localhost:0,1,2,3":                                         "gpus: 4 # --include\n",
		"deepspeed --include a:0,1@b:0":                                                 "gpus: 3 # --include\n",
		"deepspeed --include a":                                                         "# gpus: --include: a: give the key\n",
		"deepspeed --hostfile h --num_nodes 2":                                          "# gpus: --hostfile: h has the nodes and their GPUs: give the key\n",
		"deepspeed --num_nodes 2":                                                       "# gpus: --num_nodes: how many GPUs a node has is not said: give the key\n",
		"torchrun --nproc_per_node=gpu":                                                 "# gpus: --nproc_per_node: gpu: how many GPUs a node has is not said: give the key\n",
		"export CUDA_VISIBLE_DEVICES=0,1\ntorchrun --nproc_per_node=gpu":                "gpus: 2 # CUDA_VISIBLE_DEVICES, --nproc_per_node\n",
		"torchrun --nproc_per_node=8 --nnodes 1:4":                                      "# gpus: --nnodes: 1:4 nodes: give the key\n",
		"CUDA_VISIBLE_DEVICES=3 python":                                                 "gpus: 1 # CUDA_VISIBLE_DEVICES\n",
		"CUDA_VISIBLE_DEVICES=$D python":                                                "# gpus: CUDA_VISIBLE_DEVICES: which the file does not set: give the key\n",
	} {
		for _, program := range []string{megatron, trainer} {
			require.Contains(t, initial(t, text+program), want, text)
		}
	}
	require.Contains(t, initial(t, "#SBATCH --gpus-per-node=8\nsrun python"+megatron), "# gpus: --gpus-per-node: how many nodes there are is not said: give the key\n")
	require.Contains(t, initial(t, "CUDA_VISIBLE_DEVICES=0,1 python"+megatron), "# gpus: CUDA_VISIBLE_DEVICES: one process alone sees 2: give the key\n")
	got := initial(t, "CUDA_VISIBLE_DEVICES=0,1 python"+trainer)
	require.Contains(t, got, "gpus: 2 # CUDA_VISIBLE_DEVICES\n")
	require.Contains(t, got, "# Not taken over: CUDA_VISIBLE_DEVICES: a Trainer in one process runs copies on 2 GPUs by DataParallel; as many processes are taken")
}

// TestFiles: commands that take their arguments from a file, and what they say beside it.
func TestFiles(t *testing.T) {
	const tuned = "model_name_or_path: Qwen/Qwen2.5-7B\nfinetuning_type: full\nbf16: true\ncutoff_len: 512"
	for text, want := range map[string]string{
		"FORCE_TORCHRUN=1 NNODES=2 NPROC_PER_NODE=4 llamafactory-cli train a/x.yaml": "# model: llamafactory-cli train: a/x.yaml has the arguments: name it by --from, too\nperfplan: job/v1\ngpus: 8 # NPROC_PER_NODE, NNODES\n",
		"NNODES=2 llamafactory-cli train x.yaml":                                     "# gpus: NNODES: how many GPUs a node has is not said: give the key\n",
		"accelerate launch --num_processes 4 -m axolotl.cli.train x.yaml":            "# model: -m axolotl.cli.train: x.yaml has the arguments: name it by --from, too\nperfplan: job/v1\ngpus: 4 # --num_processes\n",
	} {
		require.Contains(t, initial(t, text), want, text)
	}
	got := initial(t, "FORCE_TORCHRUN=1 NPROC_PER_NODE=4 llamafactory-cli train x.yaml", tuned)
	require.Contains(t, got, "model: qwen2.5-7b # model_name_or_path Qwen/Qwen2.5-7B\ngpus: 4 # NPROC_PER_NODE\n")
	require.Contains(t, got, "micro_batch: 8 # default of per_device_train_batch_size\n")
	require.Contains(t, initial(t, "NNODES=2 NPROC_PER_NODE=4 llamafactory-cli train --stage sft --finetuning_type lora --model_name_or_path gpt2"), "gpus: 8 # NPROC_PER_NODE, NNODES\n")
}
