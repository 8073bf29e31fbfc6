package model_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/perfplan/perfplan/model"
)

// Where published counts come from.
const (
	hub    = "huggingface.co, safetensors total of the repository in the file's source"
	card   = "huggingface.co, model card of the repository in the file's source"
	paper  = "the model's paper"
	gguf   = "llama.cpp, n_params of the language model"
	counts = "model.num_parameters() of the transformers class"
)

// TestCatalogCounts compares every model of the catalog with its published
// number of parameters, to the digit where the source has it.
func TestCatalogCounts(t *testing.T) {
	published := map[string]struct {
		count  string // exact, or rounded as in "6.65B"
		beside int64  // in the published number but no parameter of ours
		source string
	}{
		"llama-7b":                   {"6.7B", 0, paper + " (arXiv 2302.13971, table 2)"},
		"llama-13b":                  {"13.0B", 0, paper + " (arXiv 2302.13971, table 2)"},
		"llama-30b":                  {"32528943616", 0, counts},
		"llama-65b":                  {"65285660672", 0, counts},
		"llama2-7b":                  {"6738417664", 32 * 64, hub + "; with one buffer of 64 rotary frequencies per layer"},
		"llama2-13b":                 {"13015866880", 40 * 64, hub + "; with rotary frequencies"},
		"llama2-70b":                 {"68976653312", 80 * 64, hub + "; with rotary frequencies"},
		"llama3-8b":                  {"8030261248", 0, hub},
		"llama3-70b":                 {"70553706496", 0, hub},
		"llama3.1-8b":                {"8030261248", 0, hub},
		"llama3.1-70b":               {"70553706496", 0, hub},
		"llama3.1-405b":              {"405853388800", 0, hub},
		"llama3.2-1b":                {"1235814400", 0, hub},
		"llama3.2-3b":                {"3212749824", 0, hub},
		"llama4-scout":               {"108641793536", 871932416, hub + ", with vision encoder and projector"},
		"llama4-maverick":            {"401583781376", 871932416, hub + ", with vision encoder and projector"},
		"tinyllama-1.1b":             {"1100048384", 0, hub},
		"smollm2-135m":               {"134515008", 0, hub},
		"smollm2-1.7b":               {"1711376384", 0, hub},
		"yi-34b":                     {"34388917248", 0, hub},
		"mistral-7b":                 {"7248023552", 2 * 768 * 4096, hub + " (v0.3, which has 768 more words)"},
		"mistral-nemo-12b":           {"12247782400", 0, hub},
		"ministral-3-3b":             {"3.4B", 0, card},
		"exaone-4.0-32b":             {"32.0B", 0, hub + ", rounded"},
		"exaone-4.0-1.2b":            {"1.28B", 0, card},
		"command-r-35b":              {"35B", 0, card},
		"command-r-32b":              {"32.3B", 0, hub + ", rounded"},
		"command-r7b":                {"8.03B", 0, hub + ", rounded"},
		"hunyuan-7b":                 {"7.50B", 0, hub + ", rounded"},
		"dots.llm1":                  {"142B", 0, card},
		"granite-3.1-3b-a800m":       {"3.3B", 0, card},
		"granite-4.0-h-micro":        {"3191396096", 0, counts},
		"granite-4.0-h-tiny":         {"7B", 0, card},
		"granite-4.0-h-small":        {"32B", 0, card},
		"lfm2-350m":                  {"354483968", 0, card},
		"lfm2-1.2b":                  {"1170340608", 0, card},
		"lfm2-2.6b":                  {"2569272320", 0, card},
		"lfm2-8b-a1b":                {"8.3B", 0, card},
		"glm-4.7-flash":              {"30B", 0, card},
		"solar-open-100b":            {"102B", 0, card},
		"ernie-4.5-21b-a3b":          {"21.8B", 0, hub + ", rounded"},
		"stablelm-3b":                {"2795443200", 0, card},
		"stablelm-2-1.6b":            {"1644515328", 0, card},
		"starcoder-15b":              {"15.5B", 0, card},
		"apertus-8b":                 {"8.05B", 0, hub + ", rounded"},
		"phi-3.5-moe":                {"41.9B", 0, card},
		"ernie-4.5-0.3b":             {"0.36B", 0, card},
		"glm-4-9b":                   {"9.4B", 0, hub + ", rounded"},
		"glm-4-9b-0414":              {"9.4B", 0, hub + ", rounded"},
		"glm-4-32b-0414":             {"33B", 0, hub + ", rounded"},
		"helium-1-2b":                {"2.2B", 0, hub + ", rounded"},
		"mixtral-8x7b":               {"46702792704", 0, hub},
		"mixtral-8x22b":              {"140620634112", 0, hub},
		"qwen2-7b":                   {"7615616512", 0, hub},
		"qwen2.5-0.5b":               {"494032768", 0, hub},
		"qwen2.5-1.5b":               {"1543714304", 0, hub},
		"qwen2.5-3b":                 {"3085938688", 0, hub},
		"qwen2.5-7b":                 {"7615616512", 0, hub},
		"qwen2.5-14b":                {"14770033664", 0, hub},
		"qwen2.5-32b":                {"32763876352", 0, hub},
		"qwen2.5-72b":                {"72706203648", 0, hub},
		"qwen1.5-moe-a2.7b":          {"14315784192", 0, hub},
		"qwen3-0.6b":                 {"751632384", 151936 * 1024, hub + "; stores the tied lm_head too"},
		"qwen3-1.7b":                 {"2031739904", 151936 * 2048, hub + "; stores the tied lm_head too"},
		"qwen3-4b":                   {"4022468096", 0, hub},
		"qwen3-8b":                   {"8190735360", 0, hub},
		"qwen3-14b":                  {"14768307200", 0, hub},
		"qwen3-32b":                  {"32762123264", 0, hub},
		"qwen3-30b-a3b":              {"30532122624", 0, hub},
		"qwen3-next-80b-a3b":         {"81324862720", 1650471424, hub + ", with multi-token prediction"},
		"qwen3.5-9b":                 {"9409813744", 0, hub + " of copies without multi-token prediction"},
		"qwen3.5-27b":                {"27781427952", 424699392, "16-bit bytes of the export in NVIDIA-NeMo/Megatron-Bridge examples/model_verification_cards/qwen3.8-27b, with multi-token prediction"},
		"qwen3.5-35b-a3b":            {"35951822704", 844640768, "the same of qwen3.6-35b-a3b"},
		"qwen3-235b-a22b":            {"235093634560", 0, hub},
		"qwen2-vl-7b":                {"8291375616", 0, hub},
		"qwen2.5-vl-3b":              {"3754622976", 0, hub},
		"qwen2.5-vl-7b":              {"8292166656", 0, hub},
		"qwen2.5-vl-32b":             {"33452718336", 0, hub},
		"qwen2.5-vl-72b":             {"73410777344", 0, hub},
		"qwen3-vl-2b":                {"2127532032", 0, hub},
		"qwen3-vl-4b":                {"4437815808", 0, hub},
		"qwen3-vl-8b":                {"8767123696", 0, hub},
		"qwen3-vl-32b":               {"33357390064", 0, hub},
		"qwen3-vl-30b-a3b":           {"31070754032", 0, hub},
		"qwen3-vl-235b-a22b":         {"235670022896", 0, hub},
		"llava-1.5-7b":               {"7063427072", 0, counts},
		"llava-1.5-13b":              {"13351494656", 0, counts},
		"bert-base":                  {"109514298", 0, counts},
		"bert-large":                 {"335174458", 0, counts},
		"roberta-base":               {"124697433", 0, counts},
		"roberta-large":              {"355412057", 0, counts},
		"modernbert-base":            {"149655232", 0, counts},
		"modernbert-large":           {"395881664", 0, counts},
		"gpt2":                       {"124439808", 0, counts},
		"gpt2-medium":                {"354823168", 0, counts},
		"gpt2-large":                 {"774030080", 0, counts},
		"gpt2-xl":                    {"1557611200", 0, counts},
		"gpt3-175b":                  {"175B", 0, paper + " (arXiv 2005.14165, table 2.1: 175.0B)"},
		"gptj-6b":                    {"6050882784", 0, counts},
		"gpt-neox-20b":               {"20554567680", 0, card},
		"pythia-160m":                {"160M", 0, card + "; exact non-embedding counts below"},
		"pythia-410m":                {"410M", 0, card},
		"pythia-1b":                  {"1.0B", 0, card},
		"pythia-1.4b":                {"1.4B", 0, card},
		"pythia-2.8b":                {"2.8B", 0, card},
		"pythia-6.9b":                {"6.9B", 0, card},
		"pythia-12b":                 {"12B", 0, card},
		"falcon-7b":                  {"7217189760", 65024 * 4544, hub + "; stores the tied lm_head too"},
		"falcon-40b":                 {"41.3B", 0, hub + ", rounded"},
		"falcon-180b":                {"179522565120", 65024 * 14848, hub + "; stores the tied lm_head too"},
		"gemma-2b":                   {"2506172416", 0, hub},
		"gemma-7b":                   {"8537680896", 0, hub},
		"gemma2-2b":                  {"2614341888", 0, hub},
		"gemma2-9b":                  {"9241705984", 0, hub},
		"gemma2-27b":                 {"27227128320", 0, hub},
		"gemma3-1b":                  {"999885952", 0, hub},
		"gemma3-4b":                  {"4300079472", 0, hub},
		"gemma3-12b":                 {"12187325040", 0, hub},
		"gemma3-27b":                 {"27432406640", 0, hub},
		"gemma4-12b":                 {"11907350272", 0, counts},
		"gemma4-26b-a4b":             {"25233141760", 0, counts},
		"gemma4-31b":                 {"30697345280", 0, counts},
		"gemma4-e2b":                 {"4628569344", 0, counts},
		"gemma4-e4b":                 {"7463013376", 0, counts},
		"phi-2":                      {"2779683840", 0, hub},
		"phi3-mini":                  {"3821079552", 0, hub},
		"phi3-medium":                {"13960238080", 0, hub},
		"phi4":                       {"14659507200", 0, hub},
		"olmo-7b":                    {"6888095744", 0, hub},
		"olmo2-7b":                   {"7298617344", 0, hub},
		"olmo2-13b":                  {"13716198400", 0, hub},
		"olmoe-1b-7b":                {"6919161856", 0, hub},
		"gpt-oss-20b":                {"20914757184", 0, gguf},
		"gpt-oss-120b":               {"116829156672", 0, gguf},
		"deepseek-v2-lite":           {"15706484224", 0, hub},
		"deepseek-v2":                {"235741434880", 0, hub},
		"deepseek-v3":                {"671026419200", 58 * 256, hub + " of a 16-bit copy without MTP; with the router's correction terms, which are buffers"},
		"moonlight-16b-a3b":          {"15.29B", -2 * 163840 * 2048, paper + " (arXiv 2502.16982); without embeddings"},
		"kimi-k2":                    {"1026408232448", 60 * 384, hub + " of a 16-bit copy; with the router's correction terms"},
		"smollm3-3b":                 {"3075098624", 0, hub},
		"mistral-small-24b":          {"23572403200", 0, hub},
		"granite-3.3-8b":             {"8170864640", 0, hub},
		"seed-oss-36b":               {"36151104512", 0, hub},
		"starcoder2-7b":              {"7173923840", 0, hub},
		"starcoder2-15b":             {"15957889024", 0, hub},
		"olmo3-7b":                   {"7298011136", 0, hub},
		"olmo3-32b":                  {"32233522176", 0, hub},
		"glm-4.5":                    {"358337791296", 89*160 + 5_539_962_272, hub + "; with the layer for multi-token prediction and the router's correction terms"},
		"glm-4.5-air":                {"106852251264", 45 * 128, "huggingface.co/PrimeIntellect/INTELLECT-3, safetensors total: the same model without MTP; with the router's correction terms"},
		"deepseek-v3.2":              {"685B", 13_500_000_000, hub + ", rounded, with multi-token prediction and its copy of the embedding and the head, as deepseek-v3's 684.5B"},
		"deepseek-v4-flash":          {"284332230231", 0, counts},
		"deepseek-v4-pro":            {"1572997179491", 0, counts},
		"glm-5":                      {"744B", 0, card + " (744B, 40B active)"},
		"glm-5.2":                    {"753329940480", 76*256 + 9_952_920_320, hub + "; with the layer for multi-token prediction and the router's correction terms"},
		"minimax-m2":                 {"228689764864", 62 * 256, hub + "; with the router's correction terms"},
		"nemotron-3-nano-30b-a3b":    {"31.6B", 0, "research.nvidia.com/labs/nemotron/Nemotron-3 (31.6B total, 3.6B active with embeddings)"},
		"nemotron-3-super-120b-a12b": {"120B", 0, "research.nvidia.com/labs/nemotron/Nemotron-3-Super"},
		"nemotron-3-ultra-550b-a55b": {"561B", 11_215_609_856, hub + ", rounded, with multi-token prediction (550B without)"},
		"nemotron-h-8b":              {"8B", 0, "NVIDIA-NeMo/Megatron-Bridge docs/models/nemotron/nemotronh.md"},
		"bloom-560m":                 {"559214592", 0, hub},
		"bloom-7b1":                  {"7069016064", 0, hub},
		"bloom-176b":                 {"176247271424", 0, hub},
		"opt-125m":                   {"125M", 0, paper + " (arXiv 2205.01068, table 1)"},
		"opt-1.3b":                   {"1315758080", 0, counts},
		"opt-6.7b":                   {"6.7B", 0, paper},
		"opt-13b":                    {"13B", 0, paper},
		"opt-66b":                    {"66B", 0, paper},
		"opt-175b":                   {"175B", 0, paper},
		"t5-small":                   {"60506624", 0, hub},
		"t5-base":                    {"222903552", 0, hub},
		"t5-large":                   {"737668096", 0, hub},
		"t5-3b":                      {"2851598336", 0, counts},
		"flan-t5-small":              {"76961152", 0, hub},
		"flan-t5-base":               {"247577856", 0, hub},
		"flan-t5-large":              {"783150080", 0, hub},
		"flan-t5-xl":                 {"2849757184", 0, hub},
		"flan-t5-xxl":                {"11135332352", 0, counts},
		"mt5-small":                  {"300176768", 0, counts},
		"mt5-base":                   {"582401280", 0, counts},
		"mt5-large":                  {"1229581312", 0, counts},
		"mt5-xl":                     {"3742619648", 0, counts},
		"bart-base":                  {"139420416", 0, hub},
		"bart-large":                 {"406291456", 0, counts},
		"mbart-large-50":             {"610879488", 0, counts},
		"mpt-7b":                     {"6.65B", 0, hub + ", rounded"},
		"mpt-30b":                    {"30.0B", 0, hub + ", rounded"},
	}
	for _, e := range model.Catalog() {
		t.Run(e.Name, func(t *testing.T) {
			p, ok := published[e.Name]
			require.True(t, ok, "every model of the catalog needs a published count here")
			require.NotEmpty(t, p.source)
			require.Equal(t, p.count, like(p.count, e.Parameters+p.beside), p.source)
		})
	}
	require.Len(t, model.Catalog(), len(published))
}

// like formats n with the unit and digits of a published count.
func like(published string, n int64) string {
	scale, digits := 1.0, published
	switch published[len(published)-1] {
	case 'M':
		scale, digits = 1e6, published[:len(published)-1]
	case 'B':
		scale, digits = 1e9, published[:len(published)-1]
	default:
		return strconv.FormatInt(n, 10)
	}
	decimals := 0
	if _, fraction, ok := strings.Cut(digits, "."); ok {
		decimals = len(fraction)
	}
	if decimals == 0 { // names round to the nearest "nice" number: two digits must hold
		v, _ := strconv.ParseFloat(digits, 64)
		if r := float64(n) / scale / v; r > 0.98 && r < 1.02 {
			return published
		}
	}
	return strconv.FormatFloat(float64(n)/scale, 'f', decimals, 64) + published[len(published)-1:]
}

// Exact non-embedding parameters, arXiv 2304.01373 (Pythia), table 1.
func TestNonEmbedding(t *testing.T) {
	for name, want := range map[string]int64{
		"pythia-160m": 85_056_000,
		"pythia-410m": 302_311_424,
		"pythia-1b":   805_736_448,
		"pythia-1.4b": 1_208_602_624,
		"pythia-2.8b": 2_517_652_480,
		"pythia-6.9b": 6_444_163_072,
		"pythia-12b":  11_327_027_200,
	} {
		s, err := model.Load(name)
		require.NoError(t, err)
		c := s.Params()
		require.Equal(t, want, c.Total-c.Embedding-c.Head, name)
	}
}

// Layers of one block, from a pattern, from words and in the generic form.
func TestBlocks(t *testing.T) {
	kinds := func(text string) (out []string) {
		s := decode(t, text)
		for i := range s.Layers {
			out = append(out, s.Kind(i).String())
		}
		return out
	}
	want := []string{"mamba layer", "MLP alone", "attention layer", "experts alone"}
	require.Equal(t, want, kinds(`{model_type: nemotron_h, hybrid_override_pattern: "M-*E", n_routed_experts: 8, num_experts_per_tok: 2, moe_intermediate_size: 64, intermediate_size: 128}`))
	require.Equal(t, want, kinds(`{model_type: nemotron_h, layer_types: [linear_attention, mlp, full_attention, moe], n_routed_experts: 8, num_experts_per_tok: 2, moe_intermediate_size: 64}`))
	require.Equal(t, want[:3], kinds(`{model_type: decoder, hybrid_layer_pattern: "M|-*/*E", hidden_size: 256, num_attention_heads: 4, intermediate_size: 512, vocab_size: 1000, gated_mlp: false}`), "cut into stages, and what multi-token prediction has behind")

	s := decode(t, `{model_type: decoder, hybrid_layer_pattern: "M*", hidden_size: 256, num_attention_heads: 4, intermediate_size: 512, vocab_size: 1000}`)
	require.Equal(t, int64(8), s.Mamba.Heads, "twice the hidden size in heads of 64")
	p := s.Tensors()
	roles := func(k model.LayerKind) (out []model.Role) {
		for _, x := range p.Layer(k) {
			out = append(out, x.Role)
		}
		return out
	}
	require.Equal(t, []model.Role{model.RoleMambaStep, model.RoleMambaDecay, model.RoleMambaSkip, model.RoleMambaConv, "mamba_conv_b", model.RoleMambaIn, model.RoleMambaNorm, model.RoleMambaOut, model.RoleNorm1}, roles(s.Kind(0)))
	require.Equal(t, []model.Role{model.RoleQ, model.RoleK, model.RoleV, model.RoleO, model.RoleNorm1}, roles(s.Kind(1)), "no MLP, and no norm of one")
}

// What one token passes through, as the model cards and papers round it.
func TestActive(t *testing.T) {
	for name, want := range map[string]string{
		"mixtral-8x7b":      "12.9B", // arXiv 2401.04088: 13B
		"mixtral-8x22b":     "39.2B", // mistral.ai: 39B
		"qwen3-30b-a3b":     "3.4B",  // model card: 3.3B
		"qwen3-235b-a22b":   "22.2B", // model card: 22B
		"deepseek-v2-lite":  "2.7B",  // arXiv 2405.04434: 2.4B without embeddings
		"deepseek-v2":       "21.4B", // arXiv 2405.04434: 21B
		"deepseek-v3":       "37.6B", // arXiv 2412.19437: 37B
		"dots.llm1":         "14B",   // model card
		"solar-open-100b":   "12B",   // model card
		"ernie-4.5-21b-a3b": "3B",    // model card
		"phi-3.5-moe":       "6.6B",  // model card
		"olmoe-1b-7b":       "1.3B",  // arXiv 2409.02060: 1.3B
		"llama3-8b":         "8.0B",
		"qwen3-vl-30b-a3b":  "3.4B", // of text: what passes through qwen3-30b-a3b

		"nemotron-3-nano-30b-a3b":    "3.6B",  // research.nvidia.com/labs/nemotron/Nemotron-3: 3.6B with embeddings
		"nemotron-3-super-120b-a12b": "12.8B", // research.nvidia.com/labs/nemotron/Nemotron-3-Super: 12B
		"nemotron-3-ultra-550b-a55b": "56.1B", // research.nvidia.com/labs/nemotron/Nemotron-3-Ultra: 55B
	} {
		s, err := model.Load(name)
		require.NoError(t, err)
		require.Equal(t, want, like(want, s.Params().Active), name)
	}
	gemma, err := model.Load("gemma4-26b-a4b")
	require.NoError(t, err)
	require.Equal(t, int64(25_233_141_760-30*(128-8)*3*2816*704), gemma.Params().Active, "8 of 128 experts beside the MLP of each of 30 layers")

	s, err := model.Load("deepseek-v3")
	require.NoError(t, err)
	c := s.Params()
	// deepseek-ai/DeepSeek-R1 on the hub, without its fp8 scales: main model, MTP module with
	// copies of embedding and head, and correction terms of 58 + 1 routers.
	require.Equal(t, int64(684_489_845_504), c.Total+c.MTP+2*129280*7168+59*256)
	require.Equal(t, int64(653_908_770_816), c.Experts)
}

// Encoder and projector apart from the language model they are of. Sums of parts that runs of
// transformers printed: visual of Qwen2.5-VL 7B; of Qwen3-VL 4B the blocks with patch and
// position tables, the merger and three of inner layers, and all that is trained when the
// former are frozen. Of Gemma 3 the tower of 416,866,032 and its projection.
func TestVisionCounts(t *testing.T) {
	for _, test := range []struct {
		name      string
		encoder   int64
		projector int64
	}{
		{"qwen2.5-vl-7b", 676_550_144 - (1280 + 5120*5120 + 5120 + 5120*3584 + 3584), 1280 + 5120*5120 + 5120 + 5120*3584 + 3584},
		{"qwen3-vl-4b", 306_242_560, 27_271_680 + 81_833_472},
		{"gemma3-4b", 416_866_032, 1152*2560 + 1152},
	} {
		s, err := model.Load(test.name)
		require.NoError(t, err)
		whole := s.Params()
		require.Equal(t, test.encoder+test.projector, whole.Vision, test.name)
		require.Equal(t, whole.Total, whole.Active+whole.Vision, "%s: text passes by the encoder", test.name)
		require.Equal(t, whole.Total, whole.Trained, test.name)
		require.False(t, whole.Sparse(), test.name)
		for frozen, want := range map[[2]bool]int64{
			{true, false}: whole.Total - test.encoder,
			{false, true}: whole.Total - test.projector,
			{true, true}:  whole.Active,
		} {
			looking := *s
			looking.Vision = s.Vision.Of(model.Images{FrozenEncoder: frozen[0], FrozenProjector: frozen[1]})
			require.Equal(t, want, looking.Params().Trained, "%s: frozen encoder and projector %v", test.name, frozen)
			require.Equal(t, whole.Total, looking.Params().Total, test.name)
		}
	}
	s, err := model.Load("qwen3-vl-4b")
	require.NoError(t, err)
	s.Vision = s.Vision.Of(model.Images{FrozenEncoder: true})
	require.Equal(t, int64(4_131_573_248), s.Params().Trained)
	s, err = model.Load("qwen3-vl-30b-a3b")
	require.NoError(t, err)
	c := s.Params()
	require.True(t, c.Sparse())
}

func TestCatalog(t *testing.T) {
	entries := model.Catalog()
	require.GreaterOrEqual(t, len(entries), 30)
	require.Equal(t, len(model.Names()), len(entries), "every file loads")
	for i, e := range entries {
		require.Equal(t, model.Names()[i], e.Name)
		require.NotEmpty(t, e.Description, e.Name)
		require.NotContains(t, e.Description, "\n")
		require.NotEmpty(t, e.Source, e.Name)
		if i > 0 {
			require.Less(t, entries[i-1].Name, e.Name)
		}
	}
}

// show writes tensors as "name [shape] flags".
func show(tensors []model.Tensor) string {
	var b strings.Builder
	for _, t := range tensors {
		fmt.Fprintf(&b, "%s %v %s", t.Name, t.Shape, [...]string{"whole", "column", "row", "vocab", "expert"}[t.Split])
		for _, flag := range []struct {
			on   bool
			name string
		}{{t.KVHead, "kv"}, {t.NoDecay, "nodecay"}, {t.TiedCopy, "tied"}} {
			if flag.on {
				b.WriteString(" " + flag.name)
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// Names, shapes and order as list(model.named_parameters()) gives them, read
// off the __init__ methods of transformers 5.17.
func TestTensors(t *testing.T) {
	small := "hidden_size: 8, num_hidden_layers: 2, num_attention_heads: 4, vocab_size: 10"
	for _, test := range []struct {
		text, embedding, dense, sparse, head string
	}{
		{"{model_type: llama, " + small + ", num_key_value_heads: 2, intermediate_size: 16}",
			`model.embed_tokens.weight [10 8] vocab
`, `self_attn.q_proj.weight [8 8] column
self_attn.k_proj.weight [4 8] column kv
self_attn.v_proj.weight [4 8] column kv
self_attn.o_proj.weight [8 8] row
mlp.gate_proj.weight [16 8] column
mlp.up_proj.weight [16 8] column
mlp.down_proj.weight [8 16] row
input_layernorm.weight [8] whole nodecay
post_attention_layernorm.weight [8] whole nodecay
`, "", `model.norm.weight [8] whole nodecay
lm_head.weight [10 8] vocab
`},
		{"{model_type: gpt2, n_embd: 8, n_layer: 2, n_head: 4, vocab_size: 10, n_positions: 6}",
			`transformer.wte.weight [10 8] vocab
transformer.wpe.weight [6 8] whole
`, `ln_1.weight [8] whole nodecay
ln_1.bias [8] whole nodecay
attn.c_attn.weight [8 24] column
attn.c_attn.bias [24] column nodecay
attn.c_proj.weight [8 8] row
attn.c_proj.bias [8] whole nodecay
ln_2.weight [8] whole nodecay
ln_2.bias [8] whole nodecay
mlp.c_fc.weight [8 32] column
mlp.c_fc.bias [32] column nodecay
mlp.c_proj.weight [32 8] row
mlp.c_proj.bias [8] whole nodecay
`, "", `transformer.ln_f.weight [8] whole nodecay
transformer.ln_f.bias [8] whole nodecay
lm_head.weight [10 8] vocab tied
`},
		{"{model_type: mixtral, " + small + ", num_key_value_heads: 4, intermediate_size: 16, num_local_experts: 4}",
			`model.embed_tokens.weight [10 8] vocab
`, "", `self_attn.q_proj.weight [8 8] column
self_attn.k_proj.weight [8 8] column kv
self_attn.v_proj.weight [8 8] column kv
self_attn.o_proj.weight [8 8] row
mlp.gate.weight [4 8] whole
mlp.experts.gate_up_proj [4 32 8] expert
mlp.experts.down_proj [4 8 16] expert
input_layernorm.weight [8] whole nodecay
post_attention_layernorm.weight [8] whole nodecay
`, `model.norm.weight [8] whole nodecay
lm_head.weight [10 8] vocab
`},
		{"{model_type: gpt_oss, " + small + ", num_key_value_heads: 2, head_dim: 2, intermediate_size: 16, num_local_experts: 4}",
			`model.embed_tokens.weight [10 8] vocab
`, "", `self_attn.sinks [4] column nodecay
self_attn.q_proj.weight [8 8] column
self_attn.q_proj.bias [8] column nodecay
self_attn.k_proj.weight [4 8] column kv
self_attn.k_proj.bias [4] column kv nodecay
self_attn.v_proj.weight [4 8] column kv
self_attn.v_proj.bias [4] column kv nodecay
self_attn.o_proj.weight [8 8] row
self_attn.o_proj.bias [8] whole nodecay
mlp.router.weight [4 8] whole
mlp.router.bias [4] whole nodecay
mlp.experts.gate_up_proj [4 8 32] expert
mlp.experts.gate_up_proj_bias [4 32] expert nodecay
mlp.experts.down_proj [4 16 8] expert
mlp.experts.down_proj_bias [4 8] expert nodecay
input_layernorm.weight [8] whole nodecay
post_attention_layernorm.weight [8] whole nodecay
`, `model.norm.weight [8] whole nodecay
lm_head.weight [10 8] vocab
`},
		{"{model_type: deepseek_v3, " + small + ", intermediate_size: 16, moe_intermediate_size: 6, n_routed_experts: 8, first_k_dense_replace: 1, q_lora_rank: 5, kv_lora_rank: 3, qk_rope_head_dim: 2, qk_nope_head_dim: 4, v_head_dim: 7}",
			`model.embed_tokens.weight [10 8] vocab
`, `self_attn.q_a_proj.weight [5 8] whole
self_attn.q_a_layernorm.weight [5] whole nodecay
self_attn.q_b_proj.weight [24 5] column
self_attn.kv_a_proj_with_mqa.weight [5 8] whole
self_attn.kv_a_layernorm.weight [3] whole nodecay
self_attn.kv_b_proj.weight [44 3] column
self_attn.o_proj.weight [8 28] row
mlp.gate_proj.weight [16 8] column
mlp.up_proj.weight [16 8] column
mlp.down_proj.weight [8 16] row
input_layernorm.weight [8] whole nodecay
post_attention_layernorm.weight [8] whole nodecay
`, `self_attn.q_a_proj.weight [5 8] whole
self_attn.q_a_layernorm.weight [5] whole nodecay
self_attn.q_b_proj.weight [24 5] column
self_attn.kv_a_proj_with_mqa.weight [5 8] whole
self_attn.kv_a_layernorm.weight [3] whole nodecay
self_attn.kv_b_proj.weight [44 3] column
self_attn.o_proj.weight [8 28] row
mlp.experts.gate_up_proj [8 12 8] expert
mlp.experts.down_proj [8 8 6] expert
mlp.gate.weight [8 8] whole
mlp.shared_experts.gate_proj.weight [6 8] column
mlp.shared_experts.up_proj.weight [6 8] column
mlp.shared_experts.down_proj.weight [8 6] row
input_layernorm.weight [8] whole nodecay
post_attention_layernorm.weight [8] whole nodecay
`, `model.norm.weight [8] whole nodecay
lm_head.weight [10 8] vocab
`},
		{"{model_type: phi3, " + small + ", num_key_value_heads: 2, intermediate_size: 16}",
			`model.embed_tokens.weight [10 8] vocab
`, `self_attn.o_proj.weight [8 8] row
self_attn.qkv_proj.weight [16 8] column
mlp.gate_up_proj.weight [32 8] column
mlp.down_proj.weight [8 16] row
input_layernorm.weight [8] whole nodecay
post_attention_layernorm.weight [8] whole nodecay
`, "", `model.norm.weight [8] whole nodecay
lm_head.weight [10 8] vocab
`},
		{"{model_type: olmo2, " + small + ", num_key_value_heads: 2, intermediate_size: 16}",
			`model.embed_tokens.weight [10 8] vocab
`, `self_attn.q_proj.weight [8 8] column
self_attn.k_proj.weight [4 8] column kv
self_attn.v_proj.weight [4 8] column kv
self_attn.o_proj.weight [8 8] row
self_attn.q_norm.weight [8] column nodecay
self_attn.k_norm.weight [4] column kv nodecay
mlp.gate_proj.weight [16 8] column
mlp.up_proj.weight [16 8] column
mlp.down_proj.weight [8 16] row
post_attention_layernorm.weight [8] whole nodecay
post_feedforward_layernorm.weight [8] whole nodecay
`, "", `model.norm.weight [8] whole nodecay
lm_head.weight [10 8] vocab
`},
		{"{model_type: falcon, " + small + ", num_kv_heads: 2, new_decoder_architecture: true}",
			`transformer.word_embeddings.weight [10 8] vocab
`, `self_attention.query_key_value.weight [16 8] column
self_attention.dense.weight [8 8] row
mlp.dense_h_to_4h.weight [32 8] column
mlp.dense_4h_to_h.weight [8 32] row
ln_attn.weight [8] whole nodecay
ln_attn.bias [8] whole nodecay
ln_mlp.weight [8] whole nodecay
ln_mlp.bias [8] whole nodecay
`, "", `transformer.ln_f.weight [8] whole nodecay
transformer.ln_f.bias [8] whole nodecay
lm_head.weight [10 8] vocab tied
`},
	} {
		t.Run(test.text, func(t *testing.T) {
			p := decode(t, test.text).Tensors()
			require.Equal(t, test.embedding, show(p.Embedding))
			if test.dense != "" {
				require.Equal(t, test.dense, show(p.Layer(model.LayerKind{Windowed: true})))
			}
			require.Equal(t, test.sparse, show(p.Layer(model.LayerKind{MoE: true})))
			require.Equal(t, test.head, show(p.Head))
		})
	}
}

// anyDecoder draws a valid model of the generic form.
func anyDecoder(t *rapid.T) *model.Spec {
	heads := rapid.SampledFrom([]int{1, 2, 4, 8, 12}).Draw(t, "heads")
	var kv []int
	for i := 1; i <= heads; i++ {
		if heads%i == 0 {
			kv = append(kv, i)
		}
	}
	layers := rapid.IntRange(1, 12).Draw(t, "layers")
	text := fmt.Sprintf("model_type: decoder\nhidden_size: %d\nnum_hidden_layers: %d\nnum_attention_heads: %d\nnum_key_value_heads: %d\nintermediate_size: %d\nvocab_size: %d\ngated_mlp: %t\ntie_word_embeddings: %t\n",
		heads*rapid.IntRange(1, 64).Draw(t, "width"), layers, heads, rapid.SampledFrom(kv).Draw(t, "kv"),
		rapid.IntRange(1, 512).Draw(t, "ffn"), rapid.IntRange(1, 1000).Draw(t, "vocab"),
		rapid.Bool().Draw(t, "gated"), rapid.Bool().Draw(t, "tied"))
	if rapid.Bool().Draw(t, "moe") {
		experts := rapid.IntRange(1, 16).Draw(t, "experts")
		text += fmt.Sprintf("num_experts: %d\nnum_experts_per_tok: %d\nmoe_intermediate_size: %d\nn_shared_experts: %d\nfirst_k_dense_replace: %d\n",
			experts, rapid.IntRange(1, experts).Draw(t, "topk"), rapid.IntRange(1, 64).Draw(t, "expert width"),
			rapid.IntRange(0, 2).Draw(t, "shared"), rapid.IntRange(0, layers).Draw(t, "dense"))
	}
	if rapid.Bool().Draw(t, "latent") {
		text += fmt.Sprintf("q_lora_rank: %d\nkv_lora_rank: %d\nqk_rope_head_dim: 4\nqk_nope_head_dim: 8\nv_head_dim: 6\n",
			rapid.IntRange(0, 32).Draw(t, "q rank"), rapid.IntRange(1, 32).Draw(t, "kv rank"))
	}
	if rapid.Bool().Draw(t, "windowed") {
		text += fmt.Sprintf("sliding_window: %d\nsliding_window_pattern: %d\n",
			rapid.IntRange(1, 300).Draw(t, "window"), rapid.IntRange(1, 4).Draw(t, "pattern"))
	}
	s, err := decodeText(text)
	if err != nil {
		t.Fatalf("%s%v", text, err)
	}
	return s.AtSequence(256)
}

func TestCountLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anyDecoder(t)
		c, p := s.Params(), s.Tensors()
		sum := func(tensors []model.Tensor) (n int64) {
			for _, x := range tensors {
				if !x.TiedCopy {
					n += x.Size()
				}
			}
			return n
		}
		units := sum(p.Embedding) + sum(p.Head)
		sparse := false
		for i := range s.Layers {
			units += sum(p.Layer(s.Kind(i)))
			sparse = sparse || s.Kind(i).MoE
		}
		require.Equal(t, units, c.Total, "sum of the units")
		require.LessOrEqual(t, c.Active, c.Total)
		if !sparse || s.MoE.TopK == s.MoE.Experts {
			require.Equal(t, c.Total, c.Active)
		} else {
			require.Less(t, c.Active, c.Total)
			require.Equal(t, c.Total-c.Active, c.Experts/s.MoE.Experts*(s.MoE.Experts-s.MoE.TopK))
		}
		if s.Tied {
			require.Zero(t, c.Head)
		}
	})
}
