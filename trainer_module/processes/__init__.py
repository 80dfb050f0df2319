"""The processes of a training: who they are, what they tell, who watches over them."""
