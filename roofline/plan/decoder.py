"""The shape of a decoder-only transformer, and the parameters of its parts.

Each count takes the degree of tensor parallelism, by which Megatron-LM (Shoeybi et al. 2019,
section 3) divides heads, inner widths and the vocabulary; norms and routers are on each GPU whole.
"""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class DecoderShape:
    """Dimensions of a decoder whose layers are all alike. Widths are numbers of elements."""

    layers: int
    hidden: int
    heads: int
    key_heads: int
    head_size: int
    # Inner width of the MLP; of a mixture of experts that of one expert.
    inner: int
    vocabulary: int
    # The MLP has a third matrix whose product gates the first (SwiGLU).
    gated: bool = True
    # 1 is a dense model.
    experts: int = 1
    experts_per_token: int = 1
    # The input embedding is the output head too.
    tied: bool = False
    # Rows of a learned table of positions.
    positions: int = 0
    query_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    # Vectors a norm has: its weight, and for LayerNorm its bias.
    norm_vectors: int = 1
    # Queries and keys are normed by head.
    normed_queries: bool = False
    dropout: bool = False

    @property
    def attention_width(self) -> int:
        """Query heads times head size."""
        return self.heads * self.head_size

    def key_width(self, tensor: int = 1) -> int:
        """Key heads times head size on one GPU; a head is repeated where there are too few."""
        return max(self.key_heads // tensor, 1) * self.head_size

    def vocabulary_rows(self, tensor: int = 1) -> int:
        """Rows of the embedding on one GPU."""
        return -(-self.vocabulary // tensor)

    def attention_matrices(self, tensor: int = 1) -> int:
        """Elements of the query, key, value and output matrices of one layer on one GPU."""
        return self.hidden * (2 * self.attention_width // tensor + 2 * self.key_width(tensor))

    def mlp_matrices(self, tensor: int = 1) -> int:
        """Elements of the matrices of one MLP, or of one expert, on one GPU."""
        return (3 if self.gated else 2) * self.hidden * self.inner // tensor

    @property
    def router(self) -> int:
        """Elements of one layer's router; 0 of a dense model."""
        return self.hidden * self.experts if self.experts > 1 else 0

    def layer_parameters(self, tensor: int = 1) -> int:
        """Parameters of one layer on one GPU, those of experts left out."""
        attention = self.attention_matrices(tensor) + self._attention_biases(tensor)
        mlp = self._mlp_parameters(tensor) if self.experts == 1 else self.router
        return attention + mlp + self.norm_parameters

    @property
    def norm_parameters(self) -> int:
        """Parameters of the norms of one layer."""
        return 2 * self.norm_vectors * self.hidden + self.norms_by_head

    @property
    def norms_by_head(self) -> int:
        """Parameters of one layer's norms of queries and keys, which all heads share."""
        return 2 * self.head_size if self.normed_queries else 0

    @property
    def undivided(self) -> int:
        """Parameters of one layer that all tensor-parallel ranks have alike.

        Norms, the router, and biases that are added once products are summed over the ranks.
        """
        biases = self.output_bias + (self.mlp_bias and self.experts == 1)
        return self.norm_parameters + self.router + biases * self.hidden

    def expert_parameters(self, tensor: int = 1, expert: int = 1) -> int:
        """Parameters of one layer's experts on one GPU; 0 of a dense model."""
        if self.experts == 1:
            return 0
        return self.experts // expert * self._mlp_parameters(tensor)

    def embedding_parameters(self, tensor: int = 1) -> int:
        """Parameters of the input embedding, and of positions, on one GPU."""
        return (self.vocabulary_rows(tensor) + self.positions) * self.hidden

    def head_parameters(self, tensor: int = 1, *, copied: bool = False) -> int:
        """Parameters of the last norm and the output head on one GPU.

        A tied head is the input embedding; `copied` where another GPU has that.
        """
        norm = self.norm_vectors * self.hidden
        own = copied or not self.tied
        return norm + (self.vocabulary_rows(tensor) * self.hidden if own else 0)

    @property
    def parameters(self) -> int:
        """All parameters of the model."""
        layers = self.layers * (self.layer_parameters() + self.expert_parameters())
        return self.embedding_parameters() + layers + self.head_parameters()

    @property
    def multiplied(self) -> int:
        """Elements of the matrices that one token is multiplied with, the output head's too."""
        mlps = self.mlp_matrices() * self.experts_per_token
        layer = self.attention_matrices() + mlps + self.router
        return self.layers * layer + self.hidden * self.vocabulary

    def _attention_biases(self, tensor: int) -> int:
        queries = self.attention_width // tensor + 2 * self.key_width(tensor)
        return (queries if self.query_bias else 0) + (self.hidden if self.output_bias else 0)

    def _mlp_parameters(self, tensor: int) -> int:
        inner = (2 if self.gated else 1) * self.inner // tensor
        biases = inner + self.hidden if self.mlp_bias else 0
        return self.mlp_matrices(tensor) + biases
